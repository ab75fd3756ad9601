// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written in Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An object of a class of `sluice/_info.py`.
pub fn info<'py>(class: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let module = fields.py().import("sluice._info")?;
    module.getattr(class)?.call((), Some(fields))
}

/// A dictionary of the fields of a structure, some of them as other values.
macro_rules! fields {
    ($py:expr, $info:expr; $($field:ident),* ; $($name:ident: $value:expr),* $(,)?) => {{
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item(stringify!($field), $info.$field)?;)*
        $(fields.set_item(stringify!($name), $value)?;)*
        fields
    }};
}

pub(crate) use fields;
