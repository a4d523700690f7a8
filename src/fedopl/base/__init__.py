"""The foundation of all other packages: errors, arrays, labels, files. It imports none of them."""
