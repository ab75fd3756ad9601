// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that are loaded at run time: building does not need them, and without them only their results are missing.

/// Defines a structure with the functions of a library. Their names follow the prefix; their types must be the types of its header.
macro_rules! library {
    ($structure:ident, $file:literal, $prefix:literal; $($name:ident($($arguments:tt)*) $(-> $result:ty)?;)*) => {
        pub struct $structure {
            $(pub $name: unsafe extern "C" fn($($arguments)*) $(-> $result)?,)*
            /// Must be dropped last, because the functions are part of it.
            _library: libloading::Library,
        }

        impl $structure {
            pub fn load() -> anyhow::Result<Self> {
                // SAFETY: loading runs only the initializers of the library, which have no requirements.
                let library = unsafe { libloading::Library::new($file) }?;
                $(
                    // SAFETY: the types are the header's.
                    let $name = *unsafe { library.get(concat!($prefix, stringify!($name)).as_bytes()) }?;
                )*
                Ok(Self {
                    $($name,)*
                    _library: library,
                })
            }
        }
    };
}

pub(crate) use library;
