"""Measure models beyond their rankings: domains, neighbours, spaces of spans, units."""
