# Values in all the forms that they have.

FORM <- 8 * 2^20 # the supervisor's limit for one form
HTML_ROWS <- 60
# Of a table as data, as for Python's: rows, columns, values, characters, bytes.
ROWS <- 1000
COLUMNS <- 100
CELLS <- 20000
TEXT <- 2000
TABLE <- 768 * 2^10

send <- function(forms, main) {
  fields <- if (main) field("t", "main", "")
  for (type in names(forms)) {
    value <- forms[[type]]
    size <- if (is.raw(value)) length(value) else nchar(value, "bytes")
    if (size > FORM && type == "text/plain") {
      value <- iconv(rawToChar(head(charToRaw(value), FORM)), "UTF-8", "UTF-8", sub = "")
      fields <- c(fields, field("t", "failed", sprintf("text/plain: cut to %d bytes", FORM)))
    } else if (size > FORM) {
      failure <- sprintf("%s: %.0f bytes, and at most %.0f are allowed", type, size, FORM)
      fields <- c(fields, field("t", "failed", failure))
      next
    }
    form <- if (is.raw(value)) "b" else if (type == "data") "j" else "t"
    fields <- c(fields, field(form, type, value))
  }
  say("result", fields)
}

quoted <- function(text) {
  text <- substr(enc2utf8(as.character(text)), 1, TEXT)
  text <- gsub("\\", "\\\\", text, fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  for (code in intersect(unique(utf8ToInt(paste(text, collapse = ""))), 1:31)) {
    text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
  }
  paste0("\"", text, "\"")
}

# The values of a column, as text.
shown <- function(column) {
  if (is.list(column)) vapply(column, toString, "") else trimws(format(column))
}

# The values of a column, as JSON.
json_values <- function(column) {
  values <- if (is.character(column) || is.factor(column)) {
    quoted(column)
  } else if (is.logical(column)) {
    tolower(as.character(column))
  } else if (is.numeric(column) && !is.object(column)) {
    ifelse(is.finite(column), format(column, digits = 15, trim = TRUE, scientific = NA), NA)
  } else {
    quoted(shown(column))
  }
  ifelse(is.na(values) | is.na(column), "null", values)
}

# Vectors of the same length that print well: matrices and lists do not count.
is_table <- function(value) is.data.frame(value) && ncol(value) > 0 &&
  all(vapply(value, function(column) is.null(dim(column)), NA))

# The table as data, with as many of its first rows as fit.
as_data <- function(table) {
  width <- min(ncol(table), COLUMNS)
  rows <- min(nrow(table), ROWS, max(1, CELLS %/% width))
  list_of <- function(values) sprintf("[%s]", paste(values, collapse = ","))
  repeat {
    part <- utils::head(table, rows)[seq_len(width)]
    values <- if (rows > 0) do.call(paste, c(unname(lapply(unclass(part), json_values)), sep = ","))
    names <- rownames(part)
    fields <- c(
      columns = list_of(quoted(names(part))),
      types = list_of(quoted(vapply(part, function(column) class(column)[1], ""))),
      rows = list_of(if (rows > 0) sprintf("[%s]", values)),
      total_rows = format(nrow(table), scientific = FALSE),
      total_columns = format(ncol(table), scientific = FALSE),
      index = if (!identical(names, as.character(seq_along(names)))) list_of(quoted(names)))
    data <- sprintf("{%s}", paste0("\"", names(fields), "\":", fields, collapse = ","))
    if (rows <= 1 || nchar(data, "bytes") <= TABLE) return(data)
    rows <- rows %/% 2
  }
}

escaped <- function(text) {
  text <- gsub("&", "&amp;", text, fixed = TRUE)
  gsub("<", "&lt;", gsub(">", "&gt;", text, fixed = TRUE), fixed = TRUE)
}

as_html <- function(table) {
  part <- utils::head(table, HTML_ROWS)
  row <- function(tag, cells) sprintf("<tr>%s</tr>", paste0("<", tag, ">", cells, "</", tag, ">", collapse = ""))
  columns <- lapply(unclass(part), function(column) escaped(shown(column)))
  body <- vapply(seq_len(nrow(part)), function(i) {
    row("td", c(escaped(rownames(part)[i]), vapply(columns, `[`, "", i)))
  }, "")
  if (nrow(part) < nrow(table)) body <- c(body, row("td", c("\u2026", sprintf("%d rows in all", nrow(table)))))
  paste(c("<table>", row("th", c("", escaped(names(table)))), body, "</table>"), collapse = "\n")
}

# A value that cannot be printed is a fault of that result, not of the run.
printed <- function(value) {
  tryCatch(
    utils::capture.output(eval(as.call(list(if (isS4(value)) methods::show else print, call("quote", value))), globalenv())),
    error = function(e) sprintf("<a %s that cannot be printed: %s>", class(value)[1], conditionMessage(e)))
}

show_value <- function(value, main) {
  text <- printed(value)
  send_pages() # printing draws, for some values
  forms <- list()
  if (length(text) > 0) forms[["text/plain"]] <- paste(text, collapse = "\n")
  if (is_table(value)) {
    forms[["text/html"]] <- tryCatch(as_html(value), error = function(e) NULL)
    forms[["data"]] <- tryCatch(as_data(value), error = function(e) NULL)
  }
  if (length(forms) > 0) send(forms, main)
}
