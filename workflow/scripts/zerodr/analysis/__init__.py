"""What models do, apart from how well they rank: domains told apart, neighbours, spaces of spans, units."""
