// Package documents tests the documents. Links, commands and cited rules must exist, the console
// sessions of the guides must print the text of the guides, and Chinese pages must match the
// English pages.
package documents
