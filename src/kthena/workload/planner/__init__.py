"""Decides what a ModelServing needs next, from what can be observed. Pure.

Words that mean one thing here:

* whole: all pods that make an instance exist and none of them is terminating; a group is whole when
  as many instances of each role are as it should have
* available: all these pods are ready
* forming: asked for, and not whole since
* terminating: all pods that exist have a deletion timestamp
* surplus: more than the spec asks for, so it is deleted and not created anew
* replaced: deleted because the template has changed, to be created from the live spec
* recreated: deleted because a pod has failed or was lost, to be created from its own revision
* outdated: not what the live spec would make
* protected: kept at its revision by the partition
* podless: a group that exists without pods, because its roles are all scaled to zero
"""
