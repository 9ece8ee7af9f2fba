"""Models that leave the house: exported folders and their cards."""
