"""The one list of places where personal data can be: how each is erased, planted with a control, and named in a certificate."""
