"""Random programs against onstream on a simulated GPU: python -m onstream.testing.simgpu."""
