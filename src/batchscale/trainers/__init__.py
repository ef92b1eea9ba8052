"""The user's own training script: the conversation with it, and the engine that trains trials by it."""
