"""What the network saw: attention tables."""
