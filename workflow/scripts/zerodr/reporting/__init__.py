"""Tables, figures and captions."""
