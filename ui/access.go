package ui

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// need is a resource that a user must be allowed to list in all namespaces.
type need struct{ group, resource string }

// guard returns a handler that checks each request before next serves the request. needs are the permissions
// that the user needs.
type guard func(next http.Handler, needs ...need) http.Handler

// localOnly rejects requests whose host is not localhost or a loopback address. Otherwise, a foreign web page
// whose host name resolves to 127.0.0.1 could read the pages in the browser of a user (DNS rebinding).
func localOnly(next http.Handler, _ ...need) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "open this page as localhost or 127.0.0.1", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// access reads the identity and the permissions of a user from the API server.
type access struct{ live client.Client }

// guard rejects requests without a valid bearer token, and requests of users without the permissions in needs.
func (a *access) guard(next http.Handler, needs ...need) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			unauthenticated(w, "a bearer token is missing")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := a.live.Create(ctx, review); err != nil {
			http.Error(w, "the API server does not review tokens", http.StatusServiceUnavailable)
			return
		}
		if !review.Status.Authenticated {
			unauthenticated(w, "the API server does not accept this bearer token")
			return
		}
		for _, need := range needs {
			allowed, err := a.allowed(ctx, &review.Status.User, need)
			switch {
			case err != nil:
				http.Error(w, "the API server does not review accesses", http.StatusServiceUnavailable)
				return
			case !allowed:
				http.Error(w, fmt.Sprintf("user %s may not list %s in all namespaces", review.Status.User.Username, need.resource), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx)) // The reviews and the page share pageTimeout.
	})
}

func unauthenticated(w http.ResponseWriter, why string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, why, http.StatusUnauthorized)
}

func (a *access) allowed(ctx context.Context, user *authenticationv1.UserInfo, need need) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: need.group, Resource: need.resource},
	}}
	for key, value := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	err := a.live.Create(ctx, review)
	return review.Status.Allowed, err
}
