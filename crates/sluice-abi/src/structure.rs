// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all structures have.

/// Defines a structure of integers without padding. The literal is its name in the C header. Its bytes are those in memory, in the byte
/// order of the machine.
macro_rules! structure {
    ($(#[$attribute:meta])* pub struct $name:ident = $c:literal { $(pub $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        const _: () = assert!(
            std::mem::size_of::<$name>() == 0 $(+ $crate::structure::size_of_integers::<$type>())*,
            "the structure has padding"
        );

        // SAFETY: its fields are integers, or arrays or structures of them, and can be 0.
        unsafe impl bytemuck::Zeroable for $name {}

        // SAFETY: as above, for all values; the assertion excludes padding.
        unsafe impl bytemuck::Pod for $name {}

        #[cfg(test)]
        impl $crate::spec::Type for $name {
            const NAME: &'static str = $c;
        }

        impl $name {
            pub const SIZE: usize = std::mem::size_of::<Self>();

            pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
                bytemuck::pod_read_unaligned(bytes)
            }

            pub fn to_bytes(&self) -> [u8; Self::SIZE] {
                bytemuck::cast(*self)
            }

            #[cfg(test)]
            pub(crate) fn layout() -> $crate::spec::Structure {
                let fields = vec![$($crate::spec::Field::new::<$type>(stringify!($field), std::mem::offset_of!(Self, $field))),*];
                $crate::spec::Structure { name: $c, size: Self::SIZE, fields }
            }
        }
    };
}

/// For structures that begin with their size.
macro_rules! sized {
    ($($name:ident),* $(,)?) => {$(
        impl $name {
            /// All fields but the size are 0.
            pub const EMPTY: Self = Self {
                size: $crate::size_of::<Self>(),
                // SAFETY: as for `Zeroable`, which is no constant.
                ..unsafe { std::mem::zeroed() }
            };
        }

        impl Default for $name {
            fn default() -> Self {
                Self::EMPTY
            }
        }
    )*};
}

/// Accepts only what can be a field of a structure.
// Rust 1.85 does not count its use in the assertions.
#[allow(dead_code)]
pub(crate) const fn size_of_integers<T: bytemuck::Pod>() -> usize {
    size_of::<T>()
}
