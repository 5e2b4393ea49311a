"""Two papers on the gradients of contrastive losses: their simulations, tables, claims and figures."""
