"""Programs that try to break the project's promises. docs/reliability.md has what they found."""
