"""Convolutions, each in the form that is fastest on its device."""
