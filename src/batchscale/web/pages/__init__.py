"""The pages, one module each: ``make_routes`` gives its routes."""
