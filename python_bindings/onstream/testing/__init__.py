"""Tools that test onstream itself. Nothing here is imported by onstream."""
