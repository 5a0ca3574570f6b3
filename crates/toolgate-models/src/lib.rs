//! Models for Toolgate: one file per wire format, a scripted model, and recording and replaying.
