//! The style of a page: light and dark, for wide screens and phones.

/// The style sheet. The policy of the page names its digest, so no other style counts.
pub(super) const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fbfaf8;--fg:#1f2328;--soft:#656d76;--line:#e3e1dc;--card:#fff;--user:#eef4ff;--user-line:#5b8def;--code:#f4f2ee;--ok:#1a7f37;--bad:#cf222e;--wait:#9a6700;--far:#6e5494;--add:#dafbe1;--del:#ffebe9;--link:#0b5cad}
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e4e6ea;--soft:#9aa3ad;--line:#2c313a;--card:#1b1e24;--user:#1b2740;--user-line:#6b9bf2;--code:#23272f;--ok:#4cc267;--bad:#ff7b72;--wait:#d8a531;--far:#b79bf0;--add:#12361f;--del:#46191c;--link:#7ab3ff}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:56rem;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 .6rem}
h2,h3,h4{line-height:1.3;margin:1.1rem 0 .4rem}
h2{font-size:1.25rem}h3{font-size:1.1rem}h4{font-size:.95rem}
a{color:var(--link)}
.session+.session{border-top:2px solid var(--line);margin-top:2.5rem;padding-top:1.5rem}
.badges{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem;margin:0 0 1rem}
.badge{border:1px solid var(--line);border-radius:1rem;padding:.05rem .65rem;font-size:.8rem;color:var(--soft);background:var(--card)}
.badge.good{color:var(--ok);border-color:currentColor}.badge.bad{color:var(--bad);border-color:currentColor}.badge.far{color:var(--far);border-color:currentColor}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .9rem;margin:.5rem 0 1rem;font-size:.88rem}
dt{color:var(--soft)}dd{margin:0}
article{border:1px solid var(--line);border-radius:.7rem;background:var(--card);padding:.7rem 1rem;margin:1rem 0}
article.user{background:var(--user);border-left:4px solid var(--user-line)}
.who{display:flex;flex-wrap:wrap;gap:.2rem .6rem;align-items:baseline;margin:0 0 .3rem;font-size:.85rem;color:var(--soft)}
.who b{color:var(--fg)}.who time{margin-left:auto}
.text>:first-child{margin-top:.2rem}.text>:last-child{margin-bottom:.2rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.86em}
code{background:var(--code);border-radius:.3rem;padding:.08em .3em}
pre{background:var(--code);border-radius:.5rem;padding:.7rem .8rem;overflow:auto;max-height:28rem;white-space:pre-wrap;margin:.4rem 0}
pre code{background:none;padding:0}
.language{margin:.8rem 0 -.3rem;font-size:.75rem;color:var(--soft)}
blockquote{border-left:3px solid var(--line);margin:.5rem 0;padding-left:.8rem;color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse}th,td{border:1px solid var(--line);padding:.25rem .6rem;text-align:left}
img{max-width:100%;border-radius:.5rem}
.image,.link{color:var(--soft);font-style:italic}
details{border:1px solid var(--line);border-radius:.6rem;background:var(--card);margin:.45rem 0;padding:0 .9rem}
details[open]{padding-bottom:.8rem}
details>h4:first-of-type{margin-top:.3rem}
summary{cursor:pointer;padding:.45rem 0;display:flex;flex-wrap:wrap;gap:.1rem .55rem;align-items:center;list-style:none}
summary::-webkit-details-marker{display:none}
summary::before{content:'\\25B8';color:var(--soft);flex:none}
details[open]>summary::before{content:'\\25BE'}
summary:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:.3rem}
.call{margin-left:1.2rem}
.call .dot{width:.6rem;height:.6rem;border-radius:50%;background:var(--soft);flex:none}
.call .hint{color:var(--soft);font-size:.85rem;flex:1 1 8rem;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.call .state{font-size:.82rem;margin-left:auto}
.ok .dot{background:var(--ok)}.failed .dot{background:var(--bad)}.pending .dot{background:var(--wait)}.foreign .dot{background:var(--far)}
.ok .state{color:var(--ok)}.failed .state{color:var(--bad)}.pending .state{color:var(--wait)}.foreign .state{color:var(--far)}
.diff span{display:block;padding:0 .3rem}.diff .added{background:var(--add)}.diff .removed{background:var(--del)}.diff .place{color:var(--soft)}
.diff .added::before{content:'+ '}.diff .removed::before{content:'- '}.diff .same::before{content:'  '}
.timeline ol{list-style:none;margin:.2rem 0 0;padding:0 0 0 .4rem;font-size:.88rem}
.timeline li{position:relative;padding:.15rem 0 .15rem 1.1rem;border-left:2px solid var(--line);display:flex;flex-wrap:wrap;gap:0 .6rem}
.timeline li::before{content:'';position:absolute;left:-.36rem;top:.62rem;width:.6rem;height:.6rem;border-radius:50%;background:var(--soft)}
.timeline li.user::before{background:var(--user-line)}.timeline li.ok::before{background:var(--ok)}.timeline li.failed::before{background:var(--bad)}.timeline li.pending::before{background:var(--wait)}.timeline li.foreign::before{background:var(--far)}
.timeline time{color:var(--soft);margin-left:auto}
.note,.end{color:var(--soft);font-size:.88rem;text-align:center;margin:.9rem 0}
footer{color:var(--soft);font-size:.8rem;text-align:center;margin-top:2.5rem}
:target{outline:2px solid var(--user-line);outline-offset:3px}
@media (max-width:40rem){body{padding:1rem .7rem 2rem;font-size:15px}.call{margin-left:.3rem}article{padding:.6rem .8rem}dl{grid-template-columns:1fr}dd{margin:0 0 .3rem}.who time{margin-left:0}}
@media print{details{break-inside:avoid}pre{max-height:none}}
";
