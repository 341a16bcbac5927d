// Package documents tests the documents. Links, commands and cited rules must exist. The commands in the
// console sessions of the guides must print the output that the guides show. Chinese pages must match the
// English pages.
package documents
