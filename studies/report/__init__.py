"""Pages, figures, LaTeX."""
