"""What people do with a model: predict, embed, search, mine, export."""
