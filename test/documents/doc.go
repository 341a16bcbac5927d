// Package documents tests the documents: their links and commands exist, and the console
// sessions of the guides print the text of the guides.
package documents
