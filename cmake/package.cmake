# `make package`: a package for the Debian or Ubuntu it is built on, with the libraries that the program was linked to
# as its dependencies.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ferry)
set(CPACK_PACKAGE_VENDOR ferry)
set(CPACK_PACKAGE_CONTACT "The authors of ferry <ferry@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tune language models larger than the GPU's memory")
set(CPACK_PACKAGE_DESCRIPTION "Weights, gradients and optimizer state stay in host memory; each layer is copied to the
GPU when it is needed. Trains on CPUs too.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
