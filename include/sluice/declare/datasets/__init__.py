"""Tables and views, stored or computed, and the decorators that declare them."""
