# Tests of the R driver's functions, with DRIVERS at crates/languages/src.
driver <- new.env(parent = baseenv())
for (name in c("protocol.R", "results.R")) {
  sys.source(file.path(Sys.getenv("DRIVERS"), "r", name), driver)
}
with(driver, {
  stopifnot(
    identical(field("t", "ab", "\u00e9"), as.raw(c(0x74, 2, 0, 0, 0, 2, 0x61, 0x62, 0xc3, 0xa9))),
    identical(number_of(258), as.raw(c(0, 0, 1, 2))),
    quoted("a\"\\\n") == "\"a\\\"\\\\\\u000a\"",
    identical(json_values(c(1.5, NA, Inf)), c("1.5", "null", "null")),
    identical(json_values(c(TRUE, NA)), c("true", "null")),
    is_table(data.frame(x = 1)),
    !is_table(data.frame()),
    !is_table(matrix(1)),
    as_data(data.frame(x = 1:2)) ==
      "{\"columns\":[\"x\"],\"types\":[\"integer\"],\"rows\":[[1],[2]],\"total_rows\":2,\"total_columns\":1}"
  )
})
