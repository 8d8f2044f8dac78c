"""Records of control-plane resources: JSON documents by kind and key."""
