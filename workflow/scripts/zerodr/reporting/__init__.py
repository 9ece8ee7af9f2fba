"""Build tables, figures and captions."""
