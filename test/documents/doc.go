// Package documents tests what people read: links lead somewhere, commands exist, and the
// console sessions of the guides print what the guides say.
package documents
