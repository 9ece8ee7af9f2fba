"""Typed, frozen settings of the bench and how they are read, checked and digested."""
