"""Word embeddings that are trained with parameter servers."""
