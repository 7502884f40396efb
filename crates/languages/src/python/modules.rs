//! Python's modules, and what provides them.

use crate::Provider;

pub(super) fn provider(module: &str, rootfs: &str) -> Option<Provider> {
    let top = module.split('.').next()?;
    if lists(NOT_IN_CELLS, top) {
        return Some(Provider::Nothing("window, sound or other system"));
    }
    if lists(PYTHON_DATA, top) && !matches!(rootfs, "python-data" | "full") {
        return Some(Provider::Rootfs("python-data"));
    }
    if let Some((_, distribution)) = DISTRIBUTIONS.iter().find(|(module, _)| *module == top) {
        return Some(Provider::Package("--pip", (*distribution).to_owned()));
    }
    if lists(PREFIXED, top) {
        return Some(Provider::Package("--pip", format!("python-{top}")));
    }
    // The name of a module has no other characters. Most distributions have the name
    // of their module.
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (top.chars().all(is_name)).then(|| Provider::Package("--pip", top.to_owned()))
}

/// Whether `names`, separated by spaces, have the module.
fn lists(names: &str, module: &str) -> bool {
    names.split(' ').any(|name| name == module)
}

/// Modules of the standard library, or of other systems, that no cell has.
const NOT_IN_CELLS: &str = "_tkinter idlelib msvcrt tkinter turtle win32api winreg winsound";

/// Modules of the recipe `python-data`.
const PYTHON_DATA: &str = "PIL aiohttp altair anyio attr attrs bs4 certifi charset_normalizer cloudpickle \
    contourpy cycler dateutil docx et_xmlfile fontTools formulaic h11 httpcore httpx \
    idna jinja2 joblib jsonschema kiwisolver lxml markupsafe matplotlib mpl_toolkits \
    mpmath multidict narwhals networkx numpy openpyxl packaging pandas patsy plotly \
    polars pptx psutil pyarrow pylab pyparsing pypdf referencing reportlab requests rpds \
    scipy seaborn sklearn soupsieve statsmodels sympy tabulate threadpoolctl tqdm \
    typing_extensions urllib3 wrapt xlsxwriter yaml yarl";

/// Modules whose distribution has `python-` before their name.
const PREFIXED: &str =
    "Levenshtein binance docx dotenv igraph jose ldap magic multipart pptx slugify snappy";

/// Modules whose distribution has another name.
const DISTRIBUTIONS: [(&str, &str); 30] = [
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyOpenSSL"),
    ("attrdict", "attrdict3"),
    ("community", "python-louvain"),
    ("cv2", "opencv-python-headless"),
    ("discord", "discord.py"),
    ("faiss", "faiss-cpu"),
    ("fitz", "PyMuPDF"),
    ("flask_cors", "Flask-Cors"),
    ("gi", "PyGObject"),
    ("git", "GitPython"),
    ("googleapiclient", "google-api-python-client"),
    ("jwt", "PyJWT"),
    ("kafka", "kafka-python"),
    ("markdown", "Markdown"),
    ("mpl_finance", "mplfinance"),
    ("mysql", "mysql-connector-python"),
    ("nacl", "PyNaCl"),
    ("osgeo", "GDAL"),
    ("pkg_resources", "setuptools"),
    ("psycopg2", "psycopg2-binary"),
    ("pymupdf", "PyMuPDF"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("speech_recognition", "SpeechRecognition"),
    ("talib", "TA-Lib"),
    ("websocket", "websocket-client"),
    ("zmq", "pyzmq"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_order() {
        assert!(PYTHON_DATA.split(' ').is_sorted() && NOT_IN_CELLS.split(' ').is_sorted());
        assert!(DISTRIBUTIONS.is_sorted());
        let mut modules = DISTRIBUTIONS.iter().map(|(module, _)| *module);
        assert!(!modules.any(|module| lists(PYTHON_DATA, module)));
    }
}
