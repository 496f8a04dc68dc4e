"""The places where personal data can be, in one list: how each is erased, planted with a control, and named in a certificate."""
