"""Measures of trained models: what their vectors are like, beside what they rank."""
