//! python-free-examples
