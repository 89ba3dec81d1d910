// Package docs has the text of Semel's documentation, for the program and the site that show it.
package docs

import "embed"

// Files are the pages, in Markdown, and their pictures that are drawn from text.
//
//go:embed *.md adr/*.md documents/*.md images/*.svg
var Files embed.FS
