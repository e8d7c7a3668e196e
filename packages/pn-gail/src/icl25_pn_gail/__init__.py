"""Imitation from demonstrations of mixed quality: PN-GAIL, its confidence classifier and its peers."""
