// Package docs shows Semel's documentation in three forms of one source: as pages that the
// service serves, as text for a terminal, and as a site of files. All of them find the same
// pages for the same words.
package docs
