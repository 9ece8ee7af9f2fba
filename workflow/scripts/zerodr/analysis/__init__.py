"""What models do, apart from how well they rank."""
