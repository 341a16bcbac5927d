// Package documents tests the documents. Links and commands must exist, and the console sessions
// of the guides must print the text of the guides.
package documents
