# The three roles; the first argument says which. The probe is for engines that
# check health by running a program.
FROM scratch
COPY outrigger probe /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["outrigger"]
