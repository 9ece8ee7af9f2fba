"""What models know beyond their rankings: how well domains can be told apart, who stands near whom."""
