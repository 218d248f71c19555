"""The paper, reproduced: every table and figure, cell by cell."""
