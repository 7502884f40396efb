# What is drawn without a device of the program's own, page by page.

# A device opens when something is drawn and none is open. It writes a file a
# page, each when the page is done.
HERE <- environment()
folder <- tempfile("plots")
devices <- 0
type_of <- c(png = "image/png", svg = "image/svg+xml", pdf = "application/pdf")

open_device <- function() {
  dir.create(folder, FALSE)
  # Also on the way out by quit().
  if (devices == 0) reg.finalizer(HERE, function(e) close_devices(), onexit = TRUE)
  devices <<- devices + 1
  able <- capabilities(c("cairo", "png"))
  page <- function(ending) sprintf("%s/%04.0f-%%04d.%s", folder, devices, ending)
  if (all(able)) grDevices::png(page("png"), 800, 600, res = 110, type = "cairo")
  else if (able[["cairo"]]) grDevices::svg(page("svg"))
  else grDevices::pdf(page("pdf"), onefile = FALSE)
}

# The devices of ours that are open, by number, with the pattern of their files.
our_devices <- function() {
  paths <- vapply(.Devices, function(device) c(attr(device, "filepath"), "")[1], "")
  names(paths) <- seq_along(paths)
  paths[dirname(paths) == folder]
}

# The last page of an open device is not done.
send_pages <- function() {
  if (devices == 0) return()
  pages <- list.files(folder, full.names = TRUE)
  for (pattern in our_devices()) {
    of_device <- startsWith(pages, sub("%04d.*", "", pattern))
    pages <- c(pages[!of_device], utils::head(pages[of_device], -1))
  }
  for (page in sort(pages)) {
    data <- readBin(page, "raw", file.size(page))
    type <- type_of[[sub(".*\\.", "", page)]]
    if (type == "image/svg+xml") data <- rawToChar(data)
    send(structure(list(data), names = type), FALSE)
    unlink(page)
  }
}

close_devices <- function() {
  if (devices == 0) return()
  for (device in names(our_devices())) grDevices::dev.off(as.integer(device))
  send_pages()
}
