//! Enums of PTX's words: each variant stands in one row, with its spelling.

/// Declares such an enum, with a method `name` that gives the spelling.
macro_rules! spelled {
    (
        $(#[$meta:meta])* $name:ident;
        $($(#[$of_variant:meta])* $variant:ident $text:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// Its spelling.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

pub(super) use spelled;
