"""Code mode: sessions."""
