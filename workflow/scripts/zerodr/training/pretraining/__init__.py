"""Learning from texts alone: which ones, what is masked, the pass through the network, dev measures."""
