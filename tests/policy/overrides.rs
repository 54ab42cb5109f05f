//! A request's own numbers, through the assembled stack.
