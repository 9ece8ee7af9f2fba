"""Mine hard negatives of training queries from rankings of the corpus."""
