# The Kubernetes of docker-compose.yaml, from the programs of tools/build.sh.
FROM scratch
COPY bin/etcd bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubectl bin/kwok /bin/
COPY config/crd /config/crd
COPY config/rbac /config/rbac
COPY bin/static/controlplane bin/static/probe /bin/
# Volumes mounted there take over the owner.
COPY --chown=65532:65532 dev/compose/volume /var/lib/controlplane
COPY --chown=65532:65532 dev/compose/volume /kubeconfigs
USER 65532:65532
# kubectl and KWOK keep caches in the home folder. People use kubectl in here too.
ENV HOME=/tmp KUBECONFIG=/var/lib/controlplane/kubeconfig
ENTRYPOINT ["controlplane"]
