# The channel to the supervisor: requests come from one pipe, frames go to another.
# The messages are described in crates/languages/src/frames/mod.rs.

number <- as.integer(commandArgs(TRUE)[1])
path <- function(number) paste0("/proc/self/fd/", number)
execution <- "1" # the number of the one that runs, which each frame carries

# The next request, as a list of lists of values; NULL at the end. The pipe is
# opened by name for each message: code can list R's open connections, and
# closeAllConnections() is a common idiom.
receive <- function() {
  from <- tryCatch(suppressWarnings(file(path(number), "rb", raw = TRUE)), error = function(e) NULL)
  if (is.null(from)) return(NULL) # the program closed the channel
  on.exit(close(from))
  take <- function(count) {
    bytes <- raw(0)
    while (length(bytes) < count) {
      more <- readBin(from, "raw", count - length(bytes))
      if (length(more) == 0) return(NULL)
      bytes <- c(bytes, more)
    }
    bytes
  }
  size <- function(bytes) sum(as.double(bytes) * 256^(3:0))
  head <- take(4)
  if (is.null(head)) return(NULL)
  body <- take(size(head))
  if (is.null(body)) stop("cellblock: the request ends early")
  request <- list()
  at <- 0
  while (at < length(body)) {
    middle <- at + 6 + as.integer(body[at + 2])
    end <- middle + size(body[at + 3:6])
    key <- rawToChar(body[seq_len(middle - at - 6) + at + 6])
    request[[key]] <- c(request[[key]], list(body[seq_len(end - middle) + middle]))
    at <- end
  }
  request
}

text_of <- function(value) {
  text <- rawToChar(value)
  Encoding(text) <- "UTF-8"
  text
}

number_of <- function(count) as.raw(count %/% 256^(3:0) %% 256)

field <- function(type, key, value) {
  if (!is.raw(value)) value <- charToRaw(enc2utf8(value))
  key <- charToRaw(key)
  c(charToRaw(type), as.raw(length(key)), number_of(length(value)), key, value)
}

say <- function(kind, ...) {
  body <- c(field("t", "kind", kind), field("t", "execution", execution), ...)
  tryCatch({
    to <- file(path(number + 1L), "wb", raw = TRUE)
    on.exit(close(to))
    writeBin(c(number_of(length(body)), body), to)
  }, error = function(e) NULL) # the program closed the channel
}
